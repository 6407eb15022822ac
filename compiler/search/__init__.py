"""Several programs for one request: the judge decides, the estimates propose."""
