import numpy as np
def signature_version(): return 1
def signatures(texts, near): return np.zeros((len(texts), near.permutations), np.uint32)
