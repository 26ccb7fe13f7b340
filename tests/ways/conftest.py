"""What a way needs: a page of a browser that is watched, over the product that all browser tests share."""

from tests.browser.conftest import _kept_context, context, page, watched

__all__ = ["_kept_context", "context", "page", "watched"]
