package kafkasink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/sinks"
	"github.com/weir-stream/weir/sinks/kafka/internal/answers"
)

// finish commits a prepared transaction by its identity, whoever wrote it. It is idempotent. The answer is nil, ErrRetriable,
// a *sinks.LostError, ErrUnknown, or an error marked fatal.
func (c *cluster) finish(ctx context.Context, p *prepared) error {
	ctx, cancel := context.WithTimeout(ctx, c.settings.deadline)
	defer cancel()
	if err := c.stillThere(ctx, p); err != nil {
		return err
	}
	answer := c.endTxn(ctx, p, true)
	after := answers.React(answers.Commit, answer)
	switch after {
	case answers.Done:
		return nil
	case answers.Lost:
		// The markers have the last word: the answer is the same when the transaction was committed with the other version.
		proof, err := c.prove(ctx, p)
		switch confirm(proof, err) {
		case verdictCommitted:
			return nil
		case verdictLost:
			l := lost(p, "the broker answers "+answer.Error())
			l.Aborted = err == nil && proof == verdictLost // else the answer alone says so
			return l
		case verdictOpen, verdictGone:
		}
		return fmt.Errorf("look for the outcome of transaction %s: %w: %w", p.ID, sinks.ErrRetriable, errors.Join(answer, err))
	case answers.Look:
		return c.settle(ctx, p, answer)
	}
	err := answers.Failure(answers.Commit, answer, onTransaction("Write", p.ID))
	if after == answers.Again {
		err = fmt.Errorf("%w: %w", sinks.ErrRetriable, err)
	}
	return fmt.Errorf("commit transaction %s: %w", p.ID, err)
}

// onTransaction is what is wanted of a transactional id.
func onTransaction(operation, id string) kafkaconn.Access {
	return kafkaconn.Access{Operation: operation, TransactionalID: id}
}

// settle turns an answer that proves nothing into an outcome by looking at the markers.
func (c *cluster) settle(ctx context.Context, p *prepared, answer error) error {
	proof, err := c.prove(ctx, p)
	if err != nil {
		return fmt.Errorf("look for the outcome of transaction %s: %w: %w", p.ID, sinks.ErrRetriable, err)
	}
	switch proof {
	case verdictCommitted:
		return nil
	case verdictLost:
		return aborted(p, "its control markers say so")
	case verdictGone:
		return unknown(p, answer)
	case verdictOpen:
	}
	return fmt.Errorf("commit transaction %s: %w: %w", p.ID, sinks.ErrRetriable, answer)
}

func lost(p *prepared, why string) *sinks.LostError {
	return &sinks.LostError{Transaction: p.ID, Payload: p.encode().Payload, Parts: p.parts(), Detail: why}
}

// aborted is a loss of which the markers tell.
func aborted(p *prepared, why string) error {
	l := lost(p, why)
	l.Aborted = true
	return l
}

func unknown(p *prepared, answer error) error {
	l := lost(p, "the partitions no longer hold what would prove it")
	if answer != nil {
		l.Detail = fmt.Sprintf("the broker answers %s, and the partitions no longer hold what would prove the outcome", answer)
	}
	l.Unknown = true
	return l
}

// stillThere reports output that went with its topic: EndTxn would succeed and write its markers to the topic's successor.
func (c *cluster) stillThere(ctx context.Context, p *prepared) error {
	names := make([]string, len(p.Topics))
	for i, t := range p.Topics {
		names[i] = t.Name
	}
	found, missing, err := kafkaconn.Topics(ctx, c.cl, names...)
	if err != nil {
		return fmt.Errorf("%w: %w", sinks.ErrRetriable, err)
	}
	for _, t := range p.Topics {
		switch err := missing[t.Name]; {
		case err == nil:
			if found[t.Name].ID != t.ID {
				return lost(p, fmt.Sprintf("topic %s was deleted and created again (id %s, now %s)", t.Name, t.ID, found[t.Name].ID))
			}
		case errors.Is(err, kafkaconn.ErrNoTopic):
			// A broker that just started does not know all topics yet; deletion is proven by the id.
			gone, idErr := c.deleted(ctx, t.ID)
			if idErr == nil && gone {
				return lost(p, fmt.Sprintf("topic %s (id %s) was deleted", t.Name, t.ID))
			}
			return fmt.Errorf("%w: %w", sinks.ErrRetriable, err)
		default:
			return fmt.Errorf("%w: %w", sinks.ErrRetriable, err)
		}
	}
	return nil
}

// deletedPatience is how long a topic id must stay unknown before the topic counts as deleted.
const deletedPatience = 3 * time.Second

func (c *cluster) deleted(ctx context.Context, id kafkaconn.TopicID) (bool, error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.TopicID = id
	req.Topics = append(req.Topics, t)
	for begin := time.Now(); time.Since(begin) < deletedPatience; {
		resp, err := req.RequestWith(ctx, c.cl)
		if err == nil && len(resp.Topics) > 0 {
			err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
		}
		if answers.React(answers.Metadata, err) != answers.None {
			return false, err
		}
		if !kafkaconn.Sleep(ctx, 100*time.Millisecond) {
			return false, ctx.Err()
		}
	}
	return true, nil
}

// endTxn sends one EndTxn in the version the committable asks for. The answer is nil, the broker's *kerr.Error as it is, or any other
// error when no answer came.
func (c *cluster) endTxn(ctx context.Context, p *prepared, commit bool) error {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID = p.ID
	req.ProducerID, req.ProducerEpoch = p.Identity.ProducerID, p.Identity.ProducerEpoch
	req.Commit = commit
	cl := c.v1
	if p.Identity.EndTxnVersion >= EndTxnV2 {
		cl = c.v2
	}
	if err := faultpoint.Err(faultpoint.EndTxnDue); err != nil {
		return fmt.Errorf("no answer from the coordinator: %w", err)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("no answer from the coordinator: %w", err)
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// prove finds out what became of a transaction from the coordinator and the control markers.
func (c *cluster) prove(ctx context.Context, p *prepared) (verdict, error) {
	// The view comes before the markers: a transaction that is gone from the coordinator has its markers written.
	view, err := c.view(ctx, p)
	if err != nil {
		return 0, err
	}
	markers, err := c.markers(ctx, p)
	if err != nil {
		return 0, err
	}
	return conclude(markers, view), nil
}

func (c *cluster) view(ctx context.Context, p *prepared) (coordinatorView, error) {
	described, err := c.describe(ctx, p.ID)
	if err != nil {
		return 0, err
	}
	return viewOf(described[p.ID], p), nil
}

// viewOf says what the coordinator's description of an id means for a transaction; the zero description is that of an unknown id.
func viewOf(d kadm.DescribedTransaction, p *prepared) coordinatorView {
	// While a transaction is being ended the coordinator may show the next epoch already.
	ours := d.ProducerID == p.Identity.ProducerID && (d.ProducerEpoch == p.Identity.ProducerEpoch || d.ProducerEpoch == p.Identity.ProducerEpoch+1)
	switch {
	case ours && d.State == stateOngoing && d.ProducerEpoch == p.Identity.ProducerEpoch:
		return viewOpen
	case ours && d.State == "PrepareCommit":
		return viewCommitting
	case ours && (d.State == "PrepareAbort" || d.State == "PrepareEpochFence"):
		return viewAborting
	}
	return viewOther
}

// stateOngoing is the coordinator's word for a transaction that nobody has begun to end.
const stateOngoing = "Ongoing"

// describe asks the coordinators about ids. Those that the broker does not know are not in the answer.
func (c *cluster) describe(ctx context.Context, ids ...string) (map[string]kadm.DescribedTransaction, error) {
	var described kadm.DescribedTransactions
	if len(ids) == 0 {
		return described, nil
	}
	err := c.ask(ctx, answers.Describe, onTransaction("Describe", ids[0]), func() (err error) {
		described, err = kadm.NewClient(c.cl).DescribeTransactions(ctx, ids...)
		for _, id := range ids {
			if err != nil {
				break
			}
			var d kadm.DescribedTransaction
			d, err = described.On(id, nil)
			if err = cmp.Or(err, d.Err); answers.React(answers.Describe, err) == answers.None {
				delete(described, id)
				err = nil
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("describe transactions: %w", err)
	}
	return described, nil
}

// writing asks for producer id and epoch of the transaction that is open on an id.
func (c *cluster) writing(ctx context.Context, id string) (Identity, error) {
	described, err := c.describe(ctx, id)
	if err != nil {
		return Identity{}, err
	}
	d := described[id]
	if d.State != stateOngoing {
		return Identity{}, fmt.Errorf("transaction %s is %q, not open", id, d.State)
	}
	return Identity{ProducerID: d.ProducerID, ProducerEpoch: d.ProducerEpoch}, nil
}

// initIDs initialises transactional ids that exist at the broker, which aborts what is open on them and fences their writers. Ids that
// the broker does not know have nothing to end. With openOnly those with nothing open are left alone.
func (c *cluster) initIDs(ctx context.Context, ids []string, openOnly bool) error {
	described, err := c.describe(ctx, ids...)
	if err != nil {
		return err
	}
	errs := make(chan error, len(described))
	begun := 0
	for id, d := range described {
		if openOnly && d.State != stateOngoing {
			continue
		}
		begun++
		// franz-go pipelines the requests on one connection to each coordinator.
		go func() {
			err := c.initID(ctx, id)
			faultpoint.Hit(faultpoint.FencedOne)
			errs <- err
		}()
	}
	var first error
	for range begun {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// fenceTimeout is the transaction timeout of an id that nobody will write with again; the broker's cap may be lower.
const fenceTimeout = 10 * time.Second

func (c *cluster) initID(ctx context.Context, id string) error {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID = kmsg.StringPtr(id)
	req.TransactionTimeoutMillis = int32(min(fenceTimeout, c.timeoutCap).Milliseconds())
	req.ProducerID, req.ProducerEpoch = -1, -1
	// The abort of what was open may be under way; the next request finds it done.
	err := c.ask(ctx, answers.Fence, onTransaction("Write", id), func() error {
		resp, err := req.RequestWith(ctx, c.cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("fence transactional id %s: %w", id, err)
	}
	return nil
}
