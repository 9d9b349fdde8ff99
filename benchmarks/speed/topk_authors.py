"""Prints the time that the authors' smooth top-k loss takes on one thread, with its gradient.

    python topk_authors.py CHECKOUT BATCH_SIZE CLASSES K TAU

CHECKOUT is one of https://github.com/oval-group/smooth-topk; the interpreter must have PyTorch.
"""

import json
import statistics
import sys
import time


def main() -> None:
    checkout, batch_size, classes, k, tau = sys.argv[1:]
    sys.path.insert(0, checkout)
    import torch
    from topk.svm import SmoothTopkSVM

    torch.set_num_threads(1)
    torch.manual_seed(0)
    loss = SmoothTopkSVM(int(classes), alpha=1.0, tau=float(tau), k=int(k))
    labels = torch.randint(int(classes), (int(batch_size),))
    times: list[float] = []
    while len(times) < 3 or (sum(times) < 2.0 and len(times) < 50):
        scores = torch.randn(int(batch_size), int(classes), requires_grad=True)
        start = time.process_time()
        loss(scores, labels).backward()
        times.append(time.process_time() - start)
    print(json.dumps({"seconds": statistics.median(times[1:]), "version": torch.__version__}))


if __name__ == "__main__":
    main()
