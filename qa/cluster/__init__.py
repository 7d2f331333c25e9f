"""Runs on several hosts: network namespaces with a slow network between them."""
