package confluent

import (
	"errors"
	"fmt"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/operator"
)

// meaning returns what a code of librdkafka means to the sink: the error of package kerr with the same meaning, a refusal of login or
// certificate, or errSilent when no answer came. It is nil for what only tells of the client itself.
func meaning(code kafka.ErrorCode) error {
	switch code {
	case kafka.ErrAuthentication:
		return kafkaconn.ErrLogin
	case kafka.ErrSsl:
		return kafkaconn.ErrCertificate
	case kafka.ErrTransport, kafka.ErrAllBrokersDown, kafka.ErrResolve, kafka.ErrTimedOut, kafka.ErrMsgTimedOut, kafka.ErrTimedOutQueue,
		kafka.ErrWaitCoord, kafka.ErrIsrInsuff:
		return errSilent
	case kafka.ErrFenced:
		return kerr.ProducerFenced
	case kafka.ErrUnknownTopic, kafka.ErrUnknownPartition:
		return kerr.UnknownTopicOrPartition
	case kafka.ErrUnsupportedFeature:
		return kerr.UnsupportedVersion
	}
	if code > 0 || code == kafka.ErrUnknown {
		return kerr.ErrorForCode(int16(code))
	}
	return nil
}

// errSilent tells that no answer came.
var errSilent = operator.Unavailable(errors.New("no answer"))

// known adds what librdkafka's error means.
func known(err error) error {
	var ke kafka.Error
	if !errors.As(err, &ke) {
		return err
	}
	if m := meaning(ke.Code()); m != nil {
		return fmt.Errorf("%w: %w", m, err)
	}
	return err
}

// goesOn tells whether a transactional call that ended with err goes on where it was when it is made again.
func goesOn(err error) bool {
	var ke kafka.Error
	return errors.As(err, &ke) && resumable(ke.Code(), ke.IsFatal(), ke.IsRetriable(), ke.TxnRequiresAbort())
}

// resumable reads librdkafka's flags. Fatal and abortable errors end the call whatever else is said.
func resumable(code kafka.ErrorCode, fatal, retriable, abortable bool) bool {
	return !fatal && !abortable && (retriable || code == kafka.ErrTimedOut)
}

// note keeps the first refusal of login or certificate among librdkafka's events.
func (p *producer) note(e kafka.Event) {
	ke, ok := e.(kafka.Error)
	if !ok {
		return
	}
	if err := known(ke); errors.Is(err, kafkaconn.ErrLogin) || errors.Is(err, kafkaconn.ErrCertificate) {
		p.refused.CompareAndSwap(nil, &err)
		return
	}
	p.cfg.Logger.Debug("librdkafka", "error", ke.Error())
}

// cause translates a call's error and adds what librdkafka has told of a refusal, since the call's own only speaks of a timeout.
func (p *producer) cause(err error) error {
	if err == nil {
		return nil
	}
	err = known(err)
	if refused := p.refused.Load(); refused != nil && !errors.Is(err, *refused) {
		return fmt.Errorf("%w: %w", err, *refused)
	}
	return err
}
