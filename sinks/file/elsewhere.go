package filesink

import (
	"context"
	"fmt"

	"github.com/weir-stream/weir/operator"
)

// elsewhereError is what a task finds where another place lies under the name of the right one, such as the empty directory that a file
// system is to be mounted on. Nothing is lost then, and nothing may be written there. The place may be back at the next restart; repeating
// at once is pointless.
type elsewhereError struct {
	place string
	why   string
}

func (e *elsewhereError) Error() string {
	return fmt.Sprintf("%s on this machine is not the place that the job writes to: %s", e.place, e.why)
}

// Is tells who repeats in place to give up.
func (e *elsewhereError) Is(target error) bool { return target == operator.ErrRefused }

// FailureClass keeps the restarts off the job's budget.
func (e *elsewhereError) FailureClass() operator.Class { return operator.ClassUnavailable }

// here fails where a sink that has prepared transactions was never at work: its fence is older than any of them, and nobody removes it.
func (p *parts[T]) here(ctx context.Context, sink string) error {
	there, err := p.store.Exists(ctx, fenceName(sink))
	if err != nil || there {
		return err
	}
	return &elsewhereError{p.settings.place.String(), fmt.Sprintf("the file %s is missing, which is older than what the job is to commit there; see whether it is mounted. "+
		"If what was there is gone for good, make that file anew, with 0 in it: the job then finds out what is lost", fenceName(sink))}
}

// fence returns the newest attempt that the place knows of, which is the writer's own or a later one once it has begun.
func (p *parts[T]) fence(ctx context.Context) (uint64, error) {
	newest, err := number(ctx, p.store, fenceName(p.writer.Sink))
	if err == nil && newest < p.writer.Attempt {
		return 0, &elsewhereError{p.settings.place.String(), fmt.Sprintf("the file %s is not as this attempt has written it; see whether it is still mounted", fenceName(p.writer.Sink))}
	}
	return newest, err
}

// leave notes that the first subtask of an attempt has opened the place.
func (p *parts[T]) leave(ctx context.Context) error {
	if p.writer.Subtask != 0 {
		return nil
	}
	return raise(ctx, p.store, openedName(p.writer.Sink), p.writer.Attempt)
}

// meet fails where the first subtask has not left its note: all subtasks open the place before any fences, so that it is not the same one.
func (p *parts[T]) meet(ctx context.Context) error {
	if p.writer.Subtask == 0 {
		return nil
	}
	opened, err := number(ctx, p.store, openedName(p.writer.Sink))
	if err == nil && opened < p.writer.Attempt {
		return &elsewhereError{p.settings.place.String(), "the first subtask of the sink has opened it on its machine, and has left no note here; all machines must share it, so see where it is not mounted"}
	}
	return err
}
