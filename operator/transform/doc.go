// Package transform holds the operators without keyed state: map, filter, flat map, union and the timestamp assigner.
//
// An instance is used by its task's goroutine only. User functions are called from several goroutines, one for each subtask, so
// they must not share what they change.
package transform
