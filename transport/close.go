package transport

// CloseCode is why a WebSocket is closed: docs/contract.md, section 3.
type CloseCode uint16

// The codes that the hub sends.
const (
	CloseEnded       CloseCode = 1000
	CloseBadFrame    CloseCode = 1003
	CloseBadText     CloseCode = 1007
	CloseTooBig      CloseCode = 1009
	CloseInternal    CloseCode = 1011
	CloseDraining    CloseCode = 1012
	CloseOverloaded  CloseCode = 1013
	CloseBadRequest  CloseCode = 4400
	CloseToken       CloseCode = 4401
	CloseForbidden   CloseCode = 4403
	CloseUnknownRun  CloseCode = 4404
	CloseSlow        CloseCode = 4408
	CloseGone        CloseCode = 4410
	CloseTooLarge    CloseCode = 4413
	CloseConnections CloseCode = 4429
)

// closeRow says what a code means.
type closeRow struct {
	code      CloseCode
	name      string // a label of metrics
	reconnect bool   // whether a client may come back
}

// closeTable is the one table of close codes.
var closeTable = [...]closeRow{
	{CloseEnded, "ended", false},
	{CloseBadFrame, "bad_frame", false},
	{CloseBadText, "bad_text", false},
	{CloseTooBig, "too_big", false},
	{CloseInternal, "internal", true},
	{CloseDraining, "draining", true},
	{CloseOverloaded, "overloaded", true},
	{CloseBadRequest, "bad_request", false},
	{CloseToken, "token", true},
	{CloseForbidden, "forbidden", false},
	{CloseUnknownRun, "unknown_run", true},
	{CloseSlow, "slow", true},
	{CloseGone, "gone", true},
	{CloseTooLarge, "too_large", false},
	{CloseConnections, "connections", true},
}

// CloseKinds is how many codes there are.
const CloseKinds = len(closeTable)

// CloseCodes lists the codes that the hub sends.
func CloseCodes() []CloseCode {
	codes := make([]CloseCode, len(closeTable))
	for i, row := range closeTable {
		codes[i] = row.code
	}
	return codes
}

// Index is the code's place in CloseCodes; -1 for a code that the hub doesn't send.
func (c CloseCode) Index() int {
	for i, row := range closeTable {
		if row.code == c {
			return i
		}
	}
	return -1
}

// String is the code's name as a label of metrics; "other" for a code that the hub doesn't send.
func (c CloseCode) String() string {
	if i := c.Index(); i >= 0 {
		return closeTable[i].name
	}
	return "other"
}

// Reconnect says whether a client may reconnect after the code: with CloseToken after a new token, with CloseUnknownRun
// slowly.
func (c CloseCode) Reconnect() bool {
	i := c.Index()
	return i >= 0 && closeTable[i].reconnect
}
