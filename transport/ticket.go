package transport

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/aguihub/aguihub/auth"
)

// errTicketForTicket keeps a ticket from outliving itself.
var errTicketForTicket = &Error{
	Status: http.StatusForbidden, Code: "scope_missing", Close: CloseForbidden, Message: "a ticket isn't given for a ticket",
}

// IssueTicket gives whoever asks a ticket for one run or one thread, which allows no more than the token shown, and says
// until when it is good, in milliseconds since 1970.
func IssueTicket(r *http.Request, ask Ask) (ticket string, expires int64, err error) {
	ask.Scope = auth.Attach
	c, err := Allow(r, ask)
	switch {
	case err != nil:
		return "", 0, err
	case c.ticket:
		return "", 0, errTicketForTicket
	case c.Grant.Open():
		return "", 0, &Error{
			Status: http.StatusNotFound, Code: "no_tickets", Message: "nobody is asked for a token here, so there are no tickets",
		}
	}
	data, err := json.Marshal(c.Grant.Only(string(ask.Run), string(ask.Thread)))
	if err != nil {
		return "", 0, fmt.Errorf("ticket: %w", err)
	}
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails, by its contract
	ticket = base64.RawURLEncoding.EncodeToString(random[:])
	keep := min(ticketKeep, time.Until(c.Grant.Expires))
	if keep <= 0 {
		return "", 0, ErrTokenExpired
	}
	if err := c.access.config.Tickets.PutTicket(r.Context(), ticketID(ticket), data, keep); err != nil {
		return "", 0, err
	}
	return ticket, time.Now().Add(keep).UnixMilli(), nil
}
