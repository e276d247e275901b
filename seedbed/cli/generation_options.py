"""Options of generating text that generate and chat share."""

from typing import Annotated

import typer

Tokens = Annotated[int, typer.Option(min=1, max=2**31 - 1, help="Tokens that an answer has at most.")]
Temperature = Annotated[float, typer.Option(help="0 takes the likeliest token.")]
TopK = Annotated[int | None, typer.Option(help="Draw among the k likeliest tokens.", show_default="all")]
TopP = Annotated[
    float | None, typer.Option(help="Draw among the likeliest tokens of this probability together.", show_default="all")
]
MinP = Annotated[
    float | None,
    typer.Option(help="Draw among tokens at least this many times as likely as the likeliest.", show_default="all"),
]
Penalty = Annotated[
    float, typer.Option("--repetition-penalty", help="Above 1, tokens that are there already become less likely.")
]
Stop = Annotated[
    list[str] | None,
    typer.Option(help="A text that ends the answer, which is cut before it; may be repeated.", show_default=False),
]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the first answer; the next one has the next seed.")]
Template = Annotated[
    str, typer.Option("--chat-template", help="Of conversations: tokenizer (its own), chatml, or a file.")
]
