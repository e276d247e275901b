"""What the commands are given, and what they leave."""

TEXTS = ["the cat sat on the mat", "the dog sat on the log", "a café, 床前明月光 \U0001f600", "more words, more words"]


def files_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
