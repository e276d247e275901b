"""python -m seedbed: the command line, as torchrun -m starts it."""

from seedbed.cli import main

if __name__ == "__main__":
    main()
