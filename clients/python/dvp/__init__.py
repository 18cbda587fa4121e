"""A partner's client of dvp."""
from . import api
from ._events import Followed
from ._operations import Intent
from ._transport import sign_request
from .amounts import erc20, fiat, from_minor, native, to_minor
from .client import AsyncClient, Client, verify_receipt
from .errors import ApiError, ChainError, DvpError, NoAnswerError, UnexpectedAnswerError, WebhookError
from .permit import Signer, permit_typed_data
from .receipt import NotVerified, Verified, canonical, content_hash, contradiction
from .webhook import verify_webhook

__all__ = [
    "ApiError", "AsyncClient", "ChainError", "Client", "DvpError", "Followed", "Intent", "NoAnswerError",
    "NotVerified", "Signer", "UnexpectedAnswerError", "Verified", "WebhookError", "api", "canonical", "content_hash",
    "contradiction", "erc20", "fiat", "from_minor", "native", "permit_typed_data", "sign_request", "to_minor",
    "verify_receipt", "verify_webhook",
]
