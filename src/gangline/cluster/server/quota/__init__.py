"""What namespaces may use: ResourceQuotas and LimitRanges."""
