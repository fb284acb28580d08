// Command mutations shows that the tests of exactly-once can fail: it breaks the protocol in one place after the other, in a copy of the
// tree, and runs the quickest suite that must notice. With -robustness it runs the robustness suite instead, for the mutations that a
// wrong output must show.
//
// A mutation is an exact text and what stands in its place. One whose text is not found exactly once stops everything, and fails
// TestMutationsApply before that: a mutation that changes nothing would be "caught" by nobody and prove nothing.
package main
