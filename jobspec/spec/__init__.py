"""Job specs and site profiles: the typed models, their schemas, and how YAML text becomes them."""
