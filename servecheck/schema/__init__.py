"""Frozen outside shapes: what scenarios and results look like to other programs."""

from servecheck.schema.endpoints_v1 import EndpointsV1
from servecheck.schema.scenario_v1 import ScenarioV1, file_parameters

__all__ = ["EndpointsV1", "ScenarioV1", "file_parameters"]
