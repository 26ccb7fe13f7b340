"""Tests of tuner.bring."""
