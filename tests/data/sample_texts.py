TEXTS = [
    "The quick brown fox jumps over the lazy dog; the dog sleeps.",
    "def add(a, b):\n    return a + b\n\n\nprint(add(1, 2))\n",
    "床前明月光，疑是地上霜。举头望明月，低头思故乡。",
    "hello hello hello world world, it's the 2nd of May 2024",
]
