"""A small shop to serve customers in: seven tools over a stock and its orders, rewarded by the state left behind.

After tau-bench's pattern, without a model as the customer: each task says all that is wanted, its reference actions are
known, and any other way to the same stock and orders counts as well. Tasks are made by number; held-out tasks have other
customers and other stocks, so that none is in both splits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clawback.environments.core import Split, Task
from clawback.environments.tools.environment import Rules, ToolSet
from clawback.environments.tools.rewards import EndState
from clawback.environments.tools.toolbox import Functions, Toolbox, ToolError
from clawback.environments.worlds import unknown_settings
from clawback.errors import UsageError

ITEMS = ("lamp", "kettle", "chair", "rope", "clock", "basket", "mirror", "ladder", "blanket", "radio")
CUSTOMERS: dict[Split, tuple[str, ...]] = {
    "train": (
        "Ada",
        "Bruno",
        "Chen",
        "Dora",
        "Emil",
        "Fatima",
        "Goran",
        "Hana",
        "Ivan",
        "June",
        "Kofi",
        "Lena",
    ),
    "test": ("Mira", "Nils", "Olga", "Pavel", "Rosa", "Sven"),
}
SYSTEM = (
    "You serve the customers of a shop with the tools you have. Do exactly what the customer asks and nothing else. "
    "When it is done, say so in a sentence, with any figure that was asked for."
)
COUNTS: dict[Split, int] = {"train": 400, "test": 100}


class Shop:
    """Stock, prices and orders. Its public methods are the tools."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.stock = {item: rng.randint(3, 20) for item in ITEMS}
        self.prices = {item: rng.randint(2, 60) for item in ITEMS}
        self.orders: dict[str, dict[str, Any]] = {}
        for number, split in enumerate(CUSTOMERS):
            for customer in CUSTOMERS[split]:
                item = rng.choice(ITEMS)
                self._add(customer, item, rng.randint(1, 3), 100 + 50 * number)

    def _add(self, customer: str, item: str, quantity: int, first: int) -> str:
        name = str(first + sum(first <= int(other) < first + 50 for other in self.orders))
        self.orders[name] = {"customer": customer, "item": item, "quantity": quantity, "status": "open"}
        return name

    def state(self) -> Mapping[str, Any]:
        return {"stock": self.stock, "orders": self.orders}

    def look_up(self, item: str) -> dict[str, int]:
        """The price and stock of one item.

        Args:
            item: what the item is called, in lower case
        """
        self._item(item)
        return {"price": self.prices[item], "stock": self.stock[item]}

    def find_orders(self, customer: str) -> dict[str, Any]:
        """The orders of a customer, by their numbers.

        Args:
            customer: the customer's first name
        """
        return {name: order for name, order in self.orders.items() if order["customer"] == customer}

    def place_order(self, customer: str, item: str, quantity: int) -> str:
        """Order some of an item for a customer; the number of the new order.

        Args:
            customer: the customer's first name
            item: what the item is called
            quantity: how many, at least 1
        """
        self._take(item, quantity)
        return self._add(customer, item, quantity, 500)

    def cancel_order(self, order: str) -> str:
        """Cancel an open order; what it held goes back into stock.

        Args:
            order: the order's number
        """
        found = self._order(order)
        found["status"] = "cancelled"
        self.stock[found["item"]] += found["quantity"]
        return "cancelled"

    def change_quantity(self, order: str, quantity: int) -> str:
        """Change how many an open order is for.

        Args:
            order: the order's number
            quantity: the new number, at least 1
        """
        found = self._order(order)
        self._take(found["item"], quantity - found["quantity"], quantity)
        found["quantity"] = quantity
        return "changed"

    def ship_order(self, order: str) -> str:
        """Ship an open order.

        Args:
            order: the order's number
        """
        self._order(order)["status"] = "shipped"
        return "shipped"

    def restock(self, item: str, quantity: int) -> dict[str, int]:
        """Put new pieces of an item into stock; its stock after it.

        Args:
            item: what the item is called
            quantity: how many came, at least 1
        """
        self._item(item)
        if quantity < 1:
            raise ToolError("quantity must be at least 1")
        self.stock[item] += quantity
        return {"stock": self.stock[item]}

    def _item(self, item: str) -> None:
        if item not in self.stock:
            raise ToolError(f"there is no item {item!r}; there are {', '.join(ITEMS)}")

    def _order(self, order: str) -> dict[str, Any]:
        if order not in self.orders:
            raise ToolError(f"there is no order {order!r}")
        if self.orders[order]["status"] != "open":
            raise ToolError(f"order {order} is {self.orders[order]['status']}")
        return self.orders[order]

    def _take(self, item: str, quantity: int, wanted: int | None = None) -> None:
        self._item(item)
        if (quantity if wanted is None else wanted) < 1:
            raise ToolError("quantity must be at least 1")
        if quantity > self.stock[item]:
            raise ToolError(f"only {self.stock[item]} of {item} are in stock")
        self.stock[item] -= quantity


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def _order_of(shop: Shop, customer: str) -> tuple[str, dict[str, Any]]:
    return next((name, order) for name, order in shop.orders.items() if order["customer"] == customer)


Made = tuple[str, list[dict[str, Any]], list[str]]
"""What the customer says, the actions that do it, and what must be told."""


def _price(shop: Shop, rng: random.Random, customer: str) -> Made:
    item = rng.choice(ITEMS)
    return (
        f"I am {customer}. What does a {item} cost?",
        [_call("look_up", item=item)],
        [str(shop.prices[item])],
    )


def _buy(shop: Shop, rng: random.Random, customer: str) -> Made:  # noqa: ARG001
    item, count = rng.choice(ITEMS), rng.randint(1, 3)
    said = f"I am {customer}. I would like to order {count} of the item {item}."
    return said, [_call("place_order", customer=customer, item=item, quantity=count)], []


def _cancel(shop: Shop, rng: random.Random, customer: str) -> Made:  # noqa: ARG001
    name, _ = _order_of(shop, customer)
    said = f"I am {customer}. Please cancel my order."
    return said, [_call("find_orders", customer=customer), _call("cancel_order", order=name)], []


def _change(shop: Shop, rng: random.Random, customer: str) -> Made:
    name, order = _order_of(shop, customer)
    count = rng.choice([n for n in (1, 2, 3) if n != order["quantity"]])
    said = f"I am {customer}. Make my order {count} instead of {order['quantity']}, please."
    return (
        said,
        [_call("find_orders", customer=customer), _call("change_quantity", order=name, quantity=count)],
        [],
    )


def _deliver(shop: Shop, rng: random.Random, customer: str) -> Made:
    name, _ = _order_of(shop, customer)
    item, count = rng.choice(ITEMS), rng.randint(1, 9)
    said = f"A delivery of {count} pieces of {item} has come: put them into stock, and ship order {name} of {customer}."
    return said, [_call("restock", item=item, quantity=count), _call("ship_order", order=name)], []


def _swap(shop: Shop, rng: random.Random, customer: str) -> Made:
    name, order = _order_of(shop, customer)
    item = rng.choice([other for other in ITEMS if other != order["item"]])
    said = f"I am {customer}. Cancel order {name} and order one {item} for me instead. What does it cost?"
    actions = [
        _call("cancel_order", order=name),
        _call("place_order", customer=customer, item=item, quantity=1),
        _call("look_up", item=item),
    ]
    return said, actions, [str(shop.prices[item])]


KINDS: tuple[Callable[[Shop, random.Random, str], Made], ...] = (
    _price,
    _buy,
    _cancel,
    _change,
    _deliver,
    _swap,
)


def task(number: int, split: Split, kinds: Sequence[str] = ()) -> Task:
    """One task, the same under the same number everywhere."""
    chosen = [kind for kind in KINDS if not kinds or kind.__name__[1:] in kinds]
    kind = chosen[number % len(chosen)]
    rng = random.Random(f"shop {split} {kind.__name__} {number}")
    seed = rng.randrange(1 << 30)
    customer = rng.choice(CUSTOMERS[split])
    prompt, actions, outputs = kind(Shop(seed), rng, customer)
    data = {"kind": kind.__name__[1:], "shop": seed, "prompt": prompt, "actions": actions, "outputs": outputs}
    return Task(f"tools:shop/{split}/{data['kind']}/{number}", data, split)


def make(settings: Mapping[str, Any]) -> ToolSet:
    """``tools:shop``; settings: ``tasks``, ``held_out``, ``kinds`` (a comma between), ``turns``."""
    unknown_settings("tools:shop", settings, ("tasks", "held_out", "kinds", "turns"))
    kinds = [kind for kind in str(settings.get("kinds", "")).split(",") if kind]
    known = [kind.__name__[1:] for kind in KINDS]
    for kind in kinds:
        if kind not in known:
            raise UsageError(f"tools:shop has no tasks of the kind `{kind}`. It has: {', '.join(known)}.")
    counts: dict[Split, int] = {
        "train": int(settings.get("tasks", COUNTS["train"])),
        "test": int(settings.get("held_out", COUNTS["test"])),
    }
    tasks: dict[Split, list[Task]] = {
        s: [task(n, s, kinds) for n in range(count)] for s, count in counts.items()
    }
    return ToolSet(
        "tools:shop", tasks, box, EndState(), Rules(turns=int(settings.get("turns", 8)), system=SYSTEM)
    )


def box(of: Task) -> Toolbox:
    return Functions(owner=Shop(int(of.data["shop"])))
