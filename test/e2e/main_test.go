package e2e_test

import (
	"testing"

	"github.com/weir-stream/weir/internal/kafkatest"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }
