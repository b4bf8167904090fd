"""Machine code is compared by line and loop; registers, labels and the order of instructions are no difference."""

from tilewatch.kernels.code_diff.code_diff import CodeText, diff_code
from tilewatch.kernels.code_diff.sass import read_sass
from tilewatch.kernels.code_diff.sass_diff import Move
from tilewatch.kernels.code_diff.source_line import SourceLine

LISTING = """
.text.product:
	//## File "lib/k.py", line 2
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_6:
	//## File "lib/k.py", line 4
        /*0010*/                   UTMALDG.2D [UR8], [UR4] ;
        /*0020*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR11+0x28060], R4 ;
        /*0030*/              @!P0 BRA `(.L_x_4) ;
.L_x_34:
	//## File "lib/k.py", line 5
        /*0040*/                   HMMA.16816.F32 R4, R8, R10, R4 ;
        /*0050*/                   FADD R142, R27, R142.reuse ;
        /*0060*/               @P0 BRA `(.L_x_6) ;
	//## File "lib/k.py", line 6
        /*0070*/                   STG.E desc[UR4][R2.64], R3 ;
        /*0080*/                   EXIT ;
.L_x_4:
	//## File "lib/k.py", line 4
        /*0090*/                   NANOSLEEP.SYNCS 0x989680 ;
        /*00a0*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR11+0x28060], R4 ;
        /*00b0*/              @!P0 BRA `(.L_x_4) ;
        /*00c0*/                   BRA `(.L_x_34) ;
"""


def test_loops_are_those_of_the_control_flow_and_not_every_jump_back() -> None:
    depths = {each.text: each.loop_depth for each in read_sass(LISTING)}
    assert depths["HMMA.16816.F32 R, R, R, R"] == 1
    assert (depths["LDC R, c[0x0]"], depths["STG.E desc[UR][R.64], R"]) == (0, 0)
    waiting = next(each for each in read_sass(LISTING) if each.opcode == "NANOSLEEP.SYNCS")
    assert waiting.loop_depth == 1, "the loop that only waits for a barrier is none of its own"


def test_other_registers_labels_and_order_are_no_difference() -> None:
    other = LISTING.replace("R142", "R9").replace(".L_x_34", ".L_x_99").replace("@P0 BRA", "@P3 BRA")
    lines = other.splitlines()
    at = next(index for index, line in enumerate(lines) if "HMMA" in line)
    lines[at], lines[at + 1] = lines[at + 1], lines[at]
    diff = diff_code(CodeText(LISTING, None), CodeText("\n".join(lines), None))
    assert (diff.rows, diff.lines, diff.sentence) == ((), (), "")


def test_the_sentence_names_the_line_and_what_moved_in_loops() -> None:
    spilled = LISTING.replace("FADD R142, R27, R142.reuse ;", "FADD R142, R27, R142 ;\n /*0055*/ LDL R3, [R1+0x10] ;")
    diff = diff_code(CodeText(LISTING, None), CodeText(spilled, None))
    assert diff.lines == (SourceLine("lib/k.py", 5),)
    assert diff.in_loops == (Move("spills", 0, 1),)
    assert diff.sentence == "other code of k.py:5; in loops: spills 0 -> 1"


def test_another_immediate_is_a_difference() -> None:
    diff = diff_code(CodeText(LISTING, None), CodeText(LISTING.replace("0x989680", "0x10"), None))
    assert diff.sentence == "other code of k.py:4; as many instructions of every kind"


def test_lines_that_a_comment_moved_are_paired_by_their_instructions() -> None:
    moved = LISTING.replace("line 6", "line 16").replace("line 5", "line 15").replace("line 4", "line 14")
    assert diff_code(CodeText(LISTING, None), CodeText(moved, None)).rows == ()
