package task

import (
	"context"

	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/operator"
)

// recover finishes the restored transactions of one sink.
func (t *Task) recover(ctx context.Context, c committer) error {
	l := t.links[c.link]
	if r, ok := c.Committer.(operator.Rewriter); ok && len(l.Restored) > 0 {
		replacement, err := r.RecoverOrRewrite(ctx, l.Restored)
		if replacement != nil {
			t.rewritten = append(t.rewritten, replacement)
		}
		return err
	}
	return c.RecoverCommit(ctx, l.Committables)
}

// Rewritten returns what Open has written again in the place of lost transactions. Its commit has to wait until the JobManagers' log knows
// of it.
func (t *Task) Rewritten() []*workerv1.Replacement { return t.rewritten }

// CommitRewritten commits what Open has written again.
func (t *Task) CommitRewritten(ctx context.Context) error {
	return t.protect(func() error {
		for _, c := range t.committers {
			r, ok := c.Committer.(operator.Rewriter)
			if !ok {
				continue
			}
			t.current = c.link
			t.activity.is(recovering, c.link)
			if err := r.CommitRewritten(ctx); err != nil {
				return t.errorf("commit what was written again", err)
			}
		}
		t.current = -1
		t.activity.is(waitsForInput, -1)
		return nil
	})
}
