package agui_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/aguihub/aguihub/oracle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(oracle.Keep(m)) }
