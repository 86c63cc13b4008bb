"""Trees walked by AVX-512: a node of eight trees at a time, for four rows side by side.

numba's compiler makes no gathers of its own here, so these are the intermediate code of LLVM, written by hand. A vector
holds where a row is in each of eight trees; a gather reads the nodes, and since a row's keys lie in four vectors, too,
one instruction picks those that the nodes ask for. Elsewhere the kernel walks in registers (`kernel.walk_clean`). What
stands where in a node is told in `kernel`, under "Trees", and known here once more.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

__all__ = ["MOST_KEYS", "ROWS", "descend", "descend_plainly", "has_vectors"]

WORDS = 8  # in a vector of AVX-512: the trees that `descend` has on their way
ROWS = 4  # that it walks side by side
MOST_KEYS = 4 * WORDS  # of a row: four vectors hold them, from which one is picked and not read again
WORD = ir.IntType(64)
VECTOR = ir.VectorType(WORD, WORDS)


def has_vectors(context: Any) -> Any:
    """Whether it is compiled for AVX-512; a constant of the machine code."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.IntType(1)(int(_vectors_of(target)))

    return types.boolean(), generate


def _vectors_of(target: Any) -> bool:
    """Whether it is compiled for AVX-512, by the words that numba's cache is told apart by."""
    return "+avx512f" in target.codegen().magic_tuple()[2].split(",")


def descend(context: Any, nodes: Any, keys: Any, row: Any, leaves: Any, levels: Any) -> Any:
    """Walk some levels; as `macem.compiling.Instructions` tells."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if not _vectors_of(target):
            return ir.IntType(1)(0)
        table, told, ends = (
            target.make_array(signature.args[place])(target, builder, arguments[place]) for place in (0, 1, 3)
        )
        n_keys = builder.extract_value(told.shape, 1)

        def vector_at(data: Any, place: Any) -> Any:
            return builder.bitcast(builder.gep(data, [place]), VECTOR.as_pointer())

        rows = [builder.add(arguments[2], WORD(number)) for number in range(ROWS)]
        stay = [vector_at(ends.data, builder.mul(one, WORD(WORDS))) for one in rows]
        registers = [
            [
                builder.load(vector_at(told.data, builder.add(builder.mul(one, n_keys), WORD(WORDS * number))), align=8)
                for number in range(MOST_KEYS // WORDS)
            ]
            for one in rows
        ]
        at_first = [builder.load(one, align=8) for one in stay]
        before, level, after = builder.block, *map(builder.append_basic_block, ("level", "after"))
        builder.branch(level)
        builder.position_at_end(level)
        number, at = builder.phi(WORD), [builder.phi(VECTOR) for _ in rows]
        at_next, on = [], _all(0)
        for here, keys_of_row in zip(at, registers, strict=True):
            word = _gathered(builder, table.data, here)
            left = builder.and_(word, _all(0xFFFF))
            right = builder.icmp_unsigned(">", _picked(builder, keys_of_row, builder.lshr(word, _all(16))), word)
            at_next.append(builder.add(builder.add(here, left), builder.zext(right, VECTOR)))
            on = builder.or_(on, left)
        number_next = builder.add(number, WORD(1))
        for phi, first, then in zip([number, *at], [WORD(0), *at_first], [number_next, *at_next], strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(then, level)
        builder.cbranch(builder.icmp_signed("<", number_next, arguments[4]), level, after)
        builder.position_at_end(after)
        for one, place in zip(at_next, stay, strict=True):
            builder.store(one, place, align=8)
        moved = builder.bitcast(builder.icmp_unsigned("!=", on, _all(0)), ir.IntType(WORDS))
        return builder.icmp_unsigned("!=", moved, moved.type(0))

    return types.boolean(nodes, keys, row, leaves, levels), generate


def _instruction(builder: Any, told: Any, name: str) -> Any:
    """One of the processor's own."""
    return cgutils.get_or_insert_function(builder.module, told, f"llvm.x86.avx512.{name}")  # type: ignore[no-untyped-call]  # numba's own


def _all(word: int) -> Any:
    """A vector of one word."""
    return ir.Constant(VECTOR, [word] * WORDS)


def _gathered(builder: Any, data: Any, places: Any) -> Any:
    """Words of an array at the places of a vector."""
    address, flags = ir.IntType(8).as_pointer(), ir.VectorType(ir.IntType(1), WORDS)
    told = ir.FunctionType(VECTOR, [VECTOR, address, VECTOR, flags, ir.IntType(32)])
    gather = _instruction(builder, told, "mask.gather.qpq.512")
    everywhere, bytes_a_word = ir.Constant(flags, [1] * WORDS), ir.IntType(32)(8)
    return builder.call(gather, [_all(0), builder.bitcast(data, address), places, everywhere, bytes_a_word])


def _picked(builder: Any, registers: Any, places: Any) -> Any:
    """Words of four vectors at the places of another; an instruction picks from two, by the lowest four bits."""
    pick = _instruction(builder, ir.FunctionType(VECTOR, [VECTOR] * 3), "vpermi2var.q.512")
    first, second, third, fourth = registers
    low, high = builder.call(pick, [first, places, second]), builder.call(pick, [third, places, fourth])
    upper = builder.icmp_unsigned("!=", builder.and_(places, _all(2 * WORDS)), _all(0))
    return builder.select(upper, high, low)


def descend_plainly(nodes: Any, keys: Any, row: int, leaves: Any, levels: int) -> bool:
    """`descend` in plain Python."""
    on = 0
    for number in range(int(row), int(row) + ROWS):
        for lane in range(WORDS):
            at = int(leaves[number, lane])
            for _ in range(max(levels, 1)):
                word = int(nodes[at])
                left, key = word & 0xFFFF, int(keys[number, word >> 16 & 0x3FFF])
                at += left + (key > word)
            leaves[number, lane] = at
            on |= left
    return on != 0
