package rpc_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/jobmanager/rpc"
)

func TestLossIsAcceptedByForceOnly(t *testing.T) {
	const (
		prepared  = jobv1.TransactionState_TRANSACTION_STATE_PREPARED
		aborted   = jobv1.TransactionState_TRANSACTION_STATE_ABORTED
		committed = jobv1.TransactionState_TRANSACTION_STATE_COMMITTED
	)
	graph := &jobv1.Graph{Vertices: []*jobv1.Vertex{{Operators: []*jobv1.Operator{{Uid: "plain"}, {Uid: "kept", DurableOutput: true}}}}}
	for name, c := range map[string]struct {
		commit, force, listed bool
		state                 jobv1.TransactionState
		sink                  string
		gives                 bool
	}{
		"abort by force":                          {force: true, listed: true, state: prepared, sink: "plain", gives: true},
		"abort by force, repeated":                {force: true, listed: true, state: aborted, sink: "plain", gives: true},
		"abort of what somebody else has aborted": {listed: true, state: aborted, sink: "plain"},
		"abort of what nothing lists":             {force: true, state: prepared, sink: "plain"},
		"abort of what is committed":              {force: true, listed: true, state: committed, sink: "plain"},
		"abort of what is kept":                   {force: true, listed: true, state: prepared, sink: "kept"},
		"commit":                                  {commit: true, force: true, listed: true, state: prepared, sink: "plain"},
	} {
		req := &jobv1.ResolveTransactionRequest{Commit: c.commit, Force: c.force}
		known := &jobv1.Transaction{Listed: c.listed, State: c.state, Sink: c.sink}
		require.Equal(t, c.gives, rpc.GivesUp(req, known, graph), name)
	}
}
