"""Draws the pictures of docs/pictures from the code and from runs of the simulated cluster.

python -m scripts.pictures

Nothing is drawn by hand: tests/pages/test_pictures.py fails where a picture is not as the code would draw it now.
"""
