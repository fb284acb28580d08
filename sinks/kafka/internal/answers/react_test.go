package answers_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks/kafka/internal/answers"
)

// row is what follows the same answers to each step, in the order of the columns, and the class of failure where a step ends with one of
// them. The client's own commit has no column: whatever it is answered, the transaction is looked at by its identity.
type row struct {
	what    string
	answers []error
	actions [9]answers.Action
	class   operator.Class
}

var columns = [9]answers.Step{answers.Init, answers.Fence, answers.Write, answers.Commit, answers.Abort, answers.Describe, answers.Read, answers.Metadata, answers.Produce}

const (
	none  = answers.None
	again = answers.Again
	look  = answers.Look
	lost  = answers.Lost
	no    = answers.Refused
	task  = answers.FailTask
	job   = answers.FailJob

	restart     = operator.ClassRestart
	unavailable = operator.ClassUnavailable
)

// repeated is the row of answers after which a batch goes again.
var repeated = [9]answers.Action{again, again, task, again, again, again, again, again, again}

// unexpected is the row of every answer that the table does not list.
var unexpected = [9]answers.Action{again, again, task, again, again, again, again, again, task}

var table = []row{
	{"no answer", []error{
		io.EOF, context.DeadlineExceeded, os.ErrDeadlineExceeded, kgo.ErrRecordTimeout, kgo.ErrRecordRetries, operator.Unavailable(errors.New("silence")),
	}, repeated, unavailable},
	{"the client's own trouble", []error{
		context.Canceled, kgo.ErrClientClosed,
	}, unexpected, restart},
	{"trouble that nobody knows", []error{errors.New("a state"), kgo.ErrAborting, kgo.ErrMaxBuffered}, repeated, restart},
	{"coordinator moved, loading or away", []error{kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable}, repeated, unavailable},
	{"leader moved or away", []error{
		kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.BrokerNotAvailable, kerr.ReplicaNotAvailable, kerr.FencedLeaderEpoch,
		kerr.UnknownLeaderEpoch, kerr.OffsetNotAvailable, kerr.ListenerNotFound, kerr.NotController,
	}, repeated, unavailable},
	{"timed out or broken off in the broker", []error{kerr.RequestTimedOut, kerr.NetworkException, kerr.ThrottlingQuotaExceeded}, repeated, unavailable},
	{"storage and replicas", []error{kerr.KafkaStorageError, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend}, repeated, unavailable},
	{"the end of the last transaction is under way", []error{kerr.ConcurrentTransactions}, repeated, restart},
	{"fenced, older epoch", []error{kerr.ProducerFenced, kerr.InvalidProducerEpoch}, [9]answers.Action{task, again, task, look, look, again, again, again, task}, restart},
	{"invalid state", []error{kerr.InvalidTxnState}, [9]answers.Action{again, again, task, lost, look, again, again, again, task}, restart},
	{"id of another producer, or expired", []error{kerr.InvalidProducerIDMapping}, [9]answers.Action{again, again, task, look, look, again, again, again, task}, restart},
	{"id unknown", []error{kerr.TransactionalIDNotFound}, [9]answers.Action{again, again, task, look, look, none, again, again, task}, restart},
	{"to be aborted", []error{kerr.TransactionAbortable}, [9]answers.Action{again, again, task, look, look, again, again, again, task}, restart},
	{"topic or partition unknown", []error{kerr.UnknownTopicOrPartition, kafkaconn.ErrNoTopic}, repeated, restart},
	{"topic id unknown", []error{kerr.UnknownTopicID}, [9]answers.Action{again, again, task, again, again, again, again, none, again}, restart},
	{"left out for another partition's sake", []error{kerr.OperationNotAttempted}, repeated, restart},
	{"topic id differs", []error{kerr.InconsistentTopicID}, repeated, unavailable},
	{"deleted by retention meanwhile", []error{kerr.OffsetOutOfRange}, unexpected, restart},
	{"too large", []error{kerr.MessageTooLarge, kerr.RecordListTooLarge}, unexpected, restart},
	{"sequence broken", []error{kerr.OutOfOrderSequenceNumber, kerr.DuplicateSequenceNumber, kerr.UnknownProducerID}, unexpected, restart},
	{"a record that will never be taken", []error{kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.UnsupportedCompressionType}, [9]answers.Action{again, again, job, again, again, again, again, again, job}, restart},
	{"no right, login or certificate", []error{
		kerr.TopicAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.GroupAuthorizationFailed,
		kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState, kafkaconn.ErrLogin, kafkaconn.ErrCertificate,
		&tls.CertificateVerificationError{Err: errors.New("expired")},
	}, [9]answers.Action{no, no, no, no, no, no, no, no, no}, restart},
	{
		"version or request not understood, timeout above the limit",
		[]error{kerr.UnsupportedVersion, kerr.InvalidRequest, kerr.InvalidTransactionTimeout},
		[9]answers.Action{job, job, job, job, job, job, job, job, job},
		restart,
	},
}

func TestReact(t *testing.T) {
	for _, r := range table {
		for i, s := range columns {
			for _, answer := range r.answers {
				require.Equal(t, r.actions[i].String(), answers.React(s, answer).String(), "%s, answered to %s: %v", r.what, s, answer)
				wrapped := answers.React(s, fmt.Errorf("client: %w", answer))
				if ends := s == answers.Commit || s == answers.Abort; !ends || r.actions[i] == no {
					require.Equal(t, r.actions[i].String(), wrapped.String(), "%s, answered to %s: %v, wrapped", r.what, s, answer)
				} else {
					require.Equal(t, again, wrapped, "%s: a client's failure tells nothing of how a transaction ended: %v", s, answer)
				}
				failure := answers.Failure(s, answer, kafkaconn.Access{Operation: "Write", Topic: "t"})
				require.ErrorIs(t, failure, answer)
				require.Equal(t, r.actions[i] == no, errors.Is(failure, operator.ErrRefused))
				want := r.class
				if r.actions[i] == job {
					want = operator.ClassFatal
				}
				require.Equal(t, want, operator.ClassOf(failure), "class of %s, answered to %s: %v", r.what, s, answer)
			}
		}
		for _, answer := range r.answers {
			require.Equal(t, look, answers.React(answers.Own, answer), "the client's own commit proves nothing: %v", answer)
		}
	}
	for s := answers.Init; s <= answers.Produce; s++ {
		require.Equal(t, answers.Done, answers.React(s, nil), s)
		require.NoError(t, answers.Failure(s, nil, kafkaconn.Access{}))
	}
	require.Len(t, columns, int(answers.Produce)-1, "every step but the client's own commit")
}

// What the table does not list never counts as done, as lost, or as nothing to be found.
func TestReactToAnswersThatNobodyExpects(t *testing.T) {
	listed := map[error]bool{}
	for _, r := range table {
		for _, answer := range r.answers {
			if _, is := answer.(*kerr.Error); is { //nolint:errorlint // the table's own
				listed[answer] = true
			}
		}
	}
	others := 0
	for code := int16(-2); code < 500; code++ {
		answer := kerr.ErrorForCode(code)
		if code == 0 || listed[answer] {
			continue
		}
		others++
		for i, s := range columns {
			require.Equal(t, unexpected[i].String(), answers.React(s, answer).String(), "%s answered %v", s, answer)
		}
		require.Equal(t, look, answers.React(answers.Own, answer))
	}
	require.Greater(t, others, 90)
}

// Nobody else in the sink looks into an answer.
func TestAnswersAreJudgedHereOnly(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../../*.go", "../../confluent/*.go", "../produce/*.go"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, found...)
	}
	require.Greater(t, len(files), 20)
	judged := regexp.MustCompile(`(errors\.(Is|As)\(|==|!=|case|IsRetriable).*kerr\.|kerr\.IsRetriable`)
	for _, file := range files {
		if matched, _ := filepath.Match("*_test.go", filepath.Base(file)); matched {
			continue
		}
		src, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, line := range judged.FindAllString(string(src), -1) {
			t.Errorf("%s: %s", file, line)
		}
	}
}
