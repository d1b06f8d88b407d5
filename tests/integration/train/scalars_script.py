"""What every rank does in the test of log(): each has values of its own."""

import gangline.train

session = gangline.train.init()
progress = session.progress(lines=False)
for step in (1, 2):
    progress.log(step, loss=float(session.rank), lr=0.1 * step)
progress.log(2, slowest=float(session.rank), reduce="max")
progress.log(2, own=float(session.rank), reduce=None)
progress.close()
session.close()
