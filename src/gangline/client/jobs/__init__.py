"""Jobs as they are looked up and judged, for whoever shows them."""
