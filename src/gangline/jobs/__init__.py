"""What a job wants: ``(job, observed, now) -> Plan``. Pure."""
