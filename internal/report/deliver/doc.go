// Package deliver sends alerts by mail, through a relay or the host's sendmail, and by signed
// webhook.
//
// It decides the format of an alert, which deliveries are retried and for how long, and, from a
// list on disk, which alerts were sent already, so that a repeated report sends nothing twice.
// Delivery is at least once: the receiver recognizes a repetition by its ID. It never decides which
// alerts are due.
package deliver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/greylag/greylag/internal/report"
)

// ErrDelivery is wrapped by the errors of failed deliveries.
var ErrDelivery = errors.New("could not be delivered")

// Channel is a way to deliver alerts.
type Channel interface {
	// Name identifies the channel in the list of sent alerts.
	Name() string
	// Send delivers an alert once. An error that wraps errForGood is not retried.
	Send(ctx context.Context, a report.Alert) error
}

var errForGood = errors.New("refused")

// All sends every alert over every channel that has not sent it before, with up to attempts tries
// and doubling pauses, and records what was sent.
func All(ctx context.Context, record *SentAlerts, channels []Channel, alerts []report.Alert, pause time.Duration) (sent int, err error) {
	for _, c := range channels {
		for _, a := range alerts {
			if record.Has(c.Name(), a.ID) {
				continue
			}
			if e := send(ctx, c, a, pause); e != nil {
				err = errors.Join(err, fmt.Errorf("%w: %s to %s: %w", ErrDelivery, a.ID, c.Name(), e))
				continue
			}
			if e := record.Add(c.Name(), a.ID); e != nil {
				return sent, errors.Join(err, e)
			}
			sent++
		}
	}
	return sent, err
}

// attempts is the number of tries of a delivery; cron retries later as well.
const attempts = 4

func send(ctx context.Context, c Channel, a report.Alert, pause time.Duration) error {
	for n := 1; ; n++ {
		err := c.Send(ctx, a)
		if err == nil || n == attempts || errors.Is(err, errForGood) {
			return err
		}
		timer := time.NewTimer(pause << (n - 1))
		select {
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(err, ctx.Err())
		case <-timer.C:
		}
	}
}
