"""What the steps of ``action.yml`` do: ``python -m servecheck.ci STEP``, told everything by the environment."""
