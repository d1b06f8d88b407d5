"""Run in every rank: says its place, after all have met."""

import json
import sys

import torch

import horovod.torch as hvd

hvd.init()
total = hvd.allreduce(torch.ones(1), op=hvd.Sum).item()
place = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]
sys.stdout.write(f"place {json.dumps([*place, int(total)])}\n")
sys.stdout.flush()
hvd.shutdown()
