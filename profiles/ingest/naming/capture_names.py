"""The name under which a suite stores a captured kernel: it keys runs that were stored, so it never changes.

What people read is `names.short_name`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from profiles.ingest.naming.names import ANONYMOUS, LAMBDA, RETURN, fold_templates, read_mangled, strip_parameters

SHORT_CHARS = 120
_FUNCTOR = re.compile(r"(?:at::native::|native::)?(\w*(?:[Ff]unctor\w*|_kernel_cuda|_kernel_impl|Ops))")


@lru_cache(maxsize=16384)
def capture_name(name: str) -> str:
    """Return the name (at most 120 characters) under which a captured kernel is stored.

    The function without return type, namespaces of ATen and lambdas; its functor and element types where the template names them.
    """
    text = ANONYMOUS.sub("", name.strip())
    if text.startswith("_Z"):
        return _cut(read_mangled(text)) or name[:SHORT_CHARS]
    functor = _functor(text)
    text = RETURN.sub("", strip_parameters(text))
    text = LAMBDA.sub("", text)
    text = fold_templates(text, keep=1)
    if len(text) > SHORT_CHARS or functor:
        text = fold_templates(text)
    text = text.replace("at::native::", "").replace("<…>", "" if functor else "<…>")
    if functor and functor not in text:
        text = f"{text}<{functor}>"
    text = re.sub(r"\s+", " ", text).strip() or name[:SHORT_CHARS]
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= SHORT_CHARS else text[:SHORT_CHARS - 20] + "…" + text[-19:]


def _functor(text: str) -> str | None:
    """What an ATen elementwise or reduce kernel computes: the innermost functor named in its template arguments."""
    if "at::native::" not in text:
        return None
    head = strip_parameters(text)
    own = fold_templates(RETURN.sub("", head)).rsplit("::", 1)[-1].split("<")[0]
    functors = [m for m in _FUNCTOR.findall(head) if m and m != own and m not in ("gpu_kernel_impl", "gpu_kernel_impl_nocast")]
    return functors[-1] if functors else None
