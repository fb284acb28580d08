package kafkasink

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-stream/weir/internal/faultpoint"
)

// pointOptions lets the fault points of an EndTxn on its way be met, which only the client sees. Without fault points it is empty.
func pointOptions() []kgo.Opt {
	if !faultpoint.Enabled {
		return nil
	}
	return []kgo.Opt{kgo.WithHooks(endTxnPoints{})}
}

type endTxnPoints struct{}

var (
	_ kgo.HookBrokerWrite = endTxnPoints{}
	_ kgo.HookBrokerRead  = endTxnPoints{}
)

func (endTxnPoints) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == int16(kmsg.EndTxn) && err == nil {
		faultpoint.Hit(faultpoint.EndTxnSent)
	}
}

func (endTxnPoints) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == int16(kmsg.EndTxn) && err == nil {
		faultpoint.Hit(faultpoint.EndTxnAnswered)
	}
}
