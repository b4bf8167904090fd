"""Changed operations are blamed on the lines that changed, and not on those that follow from them."""

from tilewatch.kernels.code_diff.source_line import SourceLine
from tilewatch.kernels.code_diff.tile_ir import read_tile_ir
from tilewatch.kernels.code_diff.tile_ir_diff import Change, diff_tile_ir

BASE = """
entry @product(%arg0: tile<ptr<f16>>, %arg1: tile<i32>) optimization_hints=<default = {occupancy = 1}> {
  %0 = make_token : token loc(#loc1)
  %cst_8 = constant <i32: 8> : tile<i32> loc(#loc2)
  %1 = muli %arg1, %cst_8 : tile<i32> loc(#loc2)
  %cst_0 = constant <i32: 0> : tile<i32> loc(#loc3)
  %cst_1 = constant <i32: 1> : tile<i32> loc(#loc3)
  %cst_f = constant <f32: 0.000000e+00> : tile<8xf32> loc(#loc3)
  %for = for %loopIdx in (%cst_0 to %arg1, step %cst_1) : tile<i32> iter_values(%iterArg0 = %cst_f) -> (tile<8xf32>) {
    %tile, %result_token = load_view_tko weak %arg0[%1, %loopIdx] token = %0 : view<8> -> tile<8xf16>, token loc(#loc4)
    %2 = mmaf %tile, %tile, %iterArg0 : tile<8xf16>, tile<8xf16>, tile<8xf32> loc(#loc5)
    continue %2 : tile<8xf32> loc(#loc3)
  } loc(#loc3)
  %3 = store_view_tko weak %for, %arg0[%1, %cst_0] token = %0 : tile<8xf32>, view<8> -> token loc(#loc6)
  return
}
#di_file = #cuda_tile.di_file<"k.py" in "lib">
#loc11 = loc("lib/k.py":1:0)
#loc12 = loc("lib/k.py":2:4)
#loc13 = loc("lib/k.py":3:4)
#loc14 = loc("lib/k.py":4:8)
#loc15 = loc("lib/k.py":5:8)
#loc16 = loc("lib/k.py":6:4)
#loc19 = loc("lib/k.py":9:4)
#loc1 = #cuda_tile.di_loc<#loc11 in #di_subprogram>
#loc2 = #cuda_tile.di_loc<#loc12 in #di_subprogram>
#loc3 = #cuda_tile.di_loc<#loc13 in #di_subprogram>
#loc4 = #cuda_tile.di_loc<#loc14 in #di_subprogram>
#loc5 = #cuda_tile.di_loc<#loc15 in #di_subprogram>
#loc6 = #cuda_tile.di_loc<#loc16 in #di_subprogram>
#loc7 = loc(callsite(#loc4 at #loc19))
#loc8 = loc(callsite(#loc4 at #loc6))
"""


def find(old: str, new: str, base: str = BASE) -> tuple[Change, ...]:
    assert base.count(old) == 1, old
    return diff_tile_ir(read_tile_ir(base), read_tile_ir(base.replace(old, new))).changes


def numbers(changes: tuple[Change, ...], *, causes: bool) -> list[int]:
    return [change.line.number for change in changes if change.is_cause == causes]


def test_operations_have_their_lines_and_what_they_use() -> None:
    operations = {each.opcode: each for each in read_tile_ir(BASE)}
    load, product = operations["load_view_tko"], operations["mmaf"]
    assert (load.line, load.loop_depth, operations["store_view_tko"].loop_depth) == (SourceLine("lib/k.py", 4), 1, 0)
    assert [value.is_argument for value in product.operands] == [False, False, True]
    assert "token" in load.attributes
    assert len(load.operands) == 3, "a token orders accesses and is no value"


def test_a_changed_number_is_blamed_and_what_uses_it_is_not() -> None:
    (change,) = find("<i32: 8>", "<i32: 16>")
    assert change.line == SourceLine("lib/k.py", 2)
    assert change.edits == ("constant: 8 -> 16",)


def test_a_hint_of_a_load_in_a_loop_is_blamed_with_its_depth() -> None:
    (change,) = find("%loopIdx] token = %0", "%loopIdx] token = %0 latency = 4")
    assert (change.line.number, change.is_cause, change.loop_depth) == (4, True, 1)


def test_an_operation_put_in_between_is_the_cause_and_the_end_of_the_loop_follows() -> None:
    more = "%9 = mulf %2, %2 : tile<8xf32> loc(#loc5)\n    continue %9"
    changes = find("continue %2", more)
    assert (numbers(changes, causes=True), numbers(changes, causes=False)) == ([5], [3])


def test_a_value_that_is_used_no_more_follows_from_the_line_that_used_it() -> None:
    head = BASE.replace("%arg0[%1, %loopIdx]", "%arg0[%cst_0, %loopIdx]").replace(
        "%arg0[%1, %cst_0]", "%arg0[%cst_0, %cst_0]"
    )
    head = "\n".join(line for line in head.splitlines() if "loc(#loc2)" not in line)
    changes = diff_tile_ir(read_tile_ir(BASE), read_tile_ir(head)).changes
    assert numbers(changes, causes=True) == [4, 6]
    assert numbers(changes, causes=False) == [2]


def test_moved_lines_and_other_names_of_values_change_nothing() -> None:
    moved = BASE.replace(":2:4)", ":12:8)").replace(":4:8)", ":14:0)").replace("%tile", "%x").replace("%1", "%77")
    assert diff_tile_ir(read_tile_ir(BASE), read_tile_ir(moved)).changes == ()


def test_independent_operations_in_another_order_change_nothing() -> None:
    lines = BASE.splitlines()
    at = next(index for index, line in enumerate(lines) if "%cst_0 = " in line)
    lines[at], lines[at + 2] = lines[at + 2], lines[at]
    assert diff_tile_ir(read_tile_ir(BASE), read_tile_ir("\n".join(lines))).changes == ()


def test_where_one_copy_of_a_function_differs_the_call_is_blamed_before_the_function() -> None:
    load = next(line for line in BASE.splitlines() if "load_view_tko" in line)
    copies = [load.replace("%tile", "%a").replace("%result_token", "%ta").replace("loc(#loc4)", "loc(#loc7)")]
    copies += [load.replace("%tile", "%b").replace("%result_token", "%tb").replace("loc(#loc4)", "loc(#loc8)")]
    base = BASE.replace(load, "\n".join([load, *copies]))
    changes = find(copies[0], copies[0].replace("token = %0", "token = %0 latency = 4"), base)
    assert (changes[0].line.number, changes[0].is_cause) == (9, True)
    both = base.replace(copies[0], copies[0].replace("weak", "strong")).replace(
        copies[1], copies[1].replace("weak", "strong")
    )
    both = both.replace(load, load.replace("weak", "strong"))
    assert diff_tile_ir(read_tile_ir(base), read_tile_ir(both)).changes[0].line.number == 4


def test_a_line_of_the_base_is_named_as_the_head_counts_it() -> None:
    removed = "\n".join(line for line in BASE.splitlines() if "store_view_tko" not in line).replace(":5:8)", ":25:8)")
    changes = diff_tile_ir(read_tile_ir(BASE), read_tile_ir(removed.replace(":4:8)", ":24:8)"))).changes
    assert [change.line.number for change in changes] == [26]
    assert changes[0].edits == ("store_view_tko removed",)
