"""Numbers for people."""
from django import template

register = template.Library()
