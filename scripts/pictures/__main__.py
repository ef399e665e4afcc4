"""Draws all pictures anew."""

from scripts.pictures.gallery import FOLDER, PICTURES, renew_pages

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8")
    renew_pages()
