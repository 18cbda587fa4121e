"""Every error of this package. None of them holds a key, a secret, a header or a body."""
from __future__ import annotations

from .api import ErrorCode


class DvpError(Exception):
    """Every error of this package."""


class ApiError(DvpError):
    """The service refused: `code` says why, and keeps its meaning."""

    def __init__(self, status: int, code: ErrorCode, message: str, param: str | None, doc_url: str, request_id: str,
                 retry_after: int | None) -> None:
        super().__init__(f"{code}: {message}{f' ({param})' if param else ''}, request {request_id}")
        self.status = status
        self.code = code
        self.message = message
        # The field, query parameter or header at fault.
        self.param = param
        # The page of the code.
        self.doc_url = doc_url
        self.request_id = request_id
        # Seconds after which the same request may be sent again.
        self.retry_after = retry_after


class NoAnswerError(DvpError):
    """There was no answer within the time for retries, so that the outcome of a write is not known.

    The same operation with the same `idempotency_key` and body gets the answer that was lost.
    """

    def __init__(self, operation: str, why: str, idempotency_key: str | None) -> None:
        super().__init__(f"{operation}: no answer ({why})")
        self.idempotency_key = idempotency_key


class UnexpectedAnswerError(DvpError):
    """The answer cannot be the service's: a proxy's page, a redirect, a cut body, or another order's."""

    def __init__(self, operation: str, status: int, why: str, idempotency_key: str | None) -> None:
        super().__init__(f"{operation}: unexpected answer {status} ({why})")
        self.status = status
        self.idempotency_key = idempotency_key


class ChainError(DvpError):
    """A node of a chain does not answer, or is of another chain."""


class WebhookError(DvpError):
    """A delivery that is not genuine: answer it with 401."""
