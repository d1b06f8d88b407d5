"""What carries the collectives: negotiation by name, fusion, torch.distributed beneath."""
