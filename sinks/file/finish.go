package filesink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

// errFenced is what a writer meets that a later attempt has taken the place of.
var errFenced = errors.New("a later attempt of the job has taken over")

// number reads a file that holds a number; 0 when it is not there.
func number(ctx context.Context, store Store, name string) (uint64, error) {
	data, err := store.Read(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("file %s: %w", name, err)
	}
	return n, nil
}

// raise makes a file hold a number, unless it holds a greater one.
func raise(ctx context.Context, store Store, name string, n uint64) error {
	old, err := number(ctx, store, name)
	if err != nil || old >= n {
		return err
	}
	return store.Replace(ctx, name, strconv.AppendUint(nil, n, 10))
}

// unfenced fails when a later attempt than the writer's has begun.
func (p *parts[T]) unfenced(ctx context.Context) error {
	newest, err := p.fence(ctx)
	if err == nil && newest > p.writer.Attempt {
		return fmt.Errorf("%w: attempt %d", errFenced, newest)
	}
	return err
}

// fate is what became of a transaction.
type fate uint8

const (
	isPending fate = iota + 1
	isCommitted
	isPartlyCommitted // some files are finished, the others pending
	isMissing
)

// fateOf finds out, without changing anything. One of a file that is gone after the transaction was committed is told by the record.
func fateOf(ctx context.Context, store Store, p *prepared) (fate, error) {
	settled, err := number(ctx, store, p.settledName())
	if err != nil {
		return 0, err
	}
	if p.Sequence <= settled {
		return isCommitted, nil
	}
	var pending, finished int
	for _, f := range p.Files {
		there, err := store.Exists(ctx, f.Pending)
		if err != nil {
			return 0, err
		}
		if there {
			pending++
			continue
		}
		if there, err = store.Exists(ctx, f.Final); err != nil {
			return 0, err
		}
		if there {
			finished++
		}
	}
	switch {
	case pending == len(p.Files):
		return isPending, nil
	case finished == len(p.Files):
		return isCommitted, nil
	case pending+finished == len(p.Files):
		return isPartlyCommitted, nil
	}
	settled, err = formerly(ctx, store, p.writer)
	if err == nil && p.Sequence <= settled {
		return isCommitted, nil
	}
	return isMissing, err
}

// publish gives every file of a transaction its name. One that has it already is left alone.
func publish(ctx context.Context, store Store, p *prepared) error {
	var lost []sinks.Part
	settled, known := uint64(0), false
	for _, f := range p.Files {
		err := store.Publish(ctx, f.Pending, f.Final)
		if err == nil {
			continue
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("finish file %s: %w", f.Final, err)
		}
		there, err := store.Exists(ctx, f.Final)
		if err != nil {
			return fmt.Errorf("look for file %s: %w", f.Final, err)
		}
		if there {
			continue
		}
		// Whoever reads finished files may have taken it away.
		if !known {
			if settled, err = number(ctx, store, p.settledName()); err != nil {
				return err
			}
			if p.Sequence > settled {
				if settled, err = formerly(ctx, store, p.writer); err != nil {
					return err
				}
			}
			known = true
		}
		if p.Sequence > settled {
			lost = append(lost, sinks.Part{Place: f.Final, Records: f.Records})
		}
	}
	if lost == nil {
		return nil
	}
	return &sinks.LostError{
		Transaction: p.id(p.Sequence), Payload: p.payload, Parts: lost, Detail: "the files are neither pending nor finished, and the transaction is not noted as committed: somebody has removed them",
	}
}

// recoverAbort removes what former attempts of the share left, after every writer of theirs has been shut out.
func recoverAbort(ctx context.Context, store Store, own writer, scope operator.Scope) error {
	if err := raise(ctx, store, fenceName(own.Sink), own.Attempt); err != nil {
		return fmt.Errorf("fence former attempts: %w", err)
	}
	var noted []string
	for name, err := range store.List(ctx, sinkDir(own.Sink)) {
		if err != nil {
			return fmt.Errorf("list what former attempts left: %w", err)
		}
		if w, former, ok := parseMark(own.Sink, name); ok && w.Subtask%scope.Parallelism == scope.Subtask && (w.Attempt < own.Attempt || former && w == own) {
			noted = append(noted, name)
		}
		l, ok := parseLeftover(own.Sink, name)
		if !ok || l.Attempt >= own.Attempt || l.Subtask%scope.Parallelism != scope.Subtask {
			continue
		}
		if err := store.Remove(ctx, name); err != nil {
			return fmt.Errorf("remove what attempt %d left: %w", l.Attempt, err)
		}
	}
	if scope.Again {
		return nil
	}
	if err := gather(ctx, store, own, noted); err != nil {
		return fmt.Errorf("gather what former attempts noted: %w", err)
	}
	return nil
}
