"""Native routes: limits, health, metrics, and `POST /api/v1/{task}` for every task."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel

from regard.server.errors import ErrorBody, responses
from regard.server.service import TheService

router = APIRouter(tags=["Regard"], responses=responses(ErrorBody))


class HealthStatus(BaseModel):
    status: str


@router.get("/api/v1/limits", summary="The limits of the server.")
async def limits(service: TheService) -> dict[str, float | None]:
    batch_limits = {f"desk_{name}": value for name, value in vars(service.limits).items()}
    return service.bounds.as_dict() | batch_limits


@router.get("/health/live", summary="Whether the server runs.")
async def live() -> HealthStatus:
    return HealthStatus(status="ok")


@router.get("/health/ready", summary="Whether every model responds.")
async def ready(service: TheService) -> HealthStatus:
    await service.ready()
    return HealthStatus(status="ready")


@router.get("/metrics", summary="Prometheus metrics.", response_class=PlainTextResponse)
async def metrics(service: TheService) -> PlainTextResponse:
    return PlainTextResponse(service.metrics_text(), media_type="text/plain; version=0.0.4")
