"""Pages of the frame: the documents."""

from __future__ import annotations

from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from webapp.frame import documents


@require_safe
def document_list(request: HttpRequest) -> HttpResponse:
    """Show every document by title."""
    return render(request, "docs/list.html", {"titles": documents.titles().items()})


@require_safe
def document(request: HttpRequest, name: str) -> HttpResponse:
    """Show one document of docs/."""
    if (page := documents.document(name)) is None:
        raise Http404
    return render(request, "docs/document.html", {"document": page})


@require_safe
def document_file(request: HttpRequest, name: str, file: str) -> FileResponse:
    """Send a picture or data file; `name`, the document that names it, is a part of its relative address."""
    if (path := documents.file_of(file)) is None:
        raise Http404
    return FileResponse(path.open("rb"), content_type=documents.FILES[path.suffix])
