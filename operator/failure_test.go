package operator_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/operator"
)

func TestClassOf(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for name, c := range map[string]struct {
		err  error
		want operator.Class
	}{
		"no class":               {errors.New("boom"), operator.ClassRestart},
		"marked":                 {fmt.Errorf("x: %w", operator.Fatal(errors.New("boom"))), operator.ClassFatal},
		"outermost":              {operator.Storage(operator.Fatal(errors.New("boom"))), operator.ClassStorage},
		"nobody listens":         {fmt.Errorf("no broker answered: %w", refused), operator.ClassUnavailable},
		"no such name":           {&net.DNSError{Err: "no such host", Name: "db"}, operator.ClassUnavailable},
		"no answer in time":      {fmt.Errorf("flush: %w", context.DeadlineExceeded), operator.ClassUnavailable},
		"a mark says more":       {operator.DataLoss(fmt.Errorf("gone: %w", refused)), operator.ClassDataLoss},
		"a refusal is an answer": {fmt.Errorf("%w: %w", operator.ErrRefused, &net.OpError{Op: "remote error", Err: errors.New("bad certificate")}), operator.ClassRestart},
		"the task is ended":      {context.Canceled, operator.ClassRestart},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, operator.ClassOf(c.err))
		})
	}
}
