// Package deliver tells people and programs about alerts: by mail, through a relay or
// the host's sendmail, and by signed webhook.
//
// It decides how an alert is packed, what is tried again and for how long, and from a
// list on disk what was told already, so that a report that is made again tells nothing
// twice. What is told arrives at least once: the receiver knows a repetition by its id.
// It never decides what deserves an alert.
package deliver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/greylag/greylag/internal/report"
)

// ErrDelivery is wrapped by what could not be told.
var ErrDelivery = errors.New("could not be delivered")

// Channel is a way to tell about one alert.
type Channel interface {
	// Name tells channels apart in the list of what was told.
	Name() string
	// Send tells about an alert once. An error that wraps errForGood is not tried again.
	Send(ctx context.Context, a report.Alert) error
}

var errForGood = errors.New("refused")

// All tells every alert over every channel that has not told it before, each up to
// attempts times with doubling pauses, and notes what was told.
func All(ctx context.Context, told *SentAlerts, channels []Channel, alerts []report.Alert, pause time.Duration) (sent int, err error) {
	for _, c := range channels {
		for _, a := range alerts {
			if told.Has(c.Name(), a.ID) {
				continue
			}
			if e := send(ctx, c, a, pause); e != nil {
				err = errors.Join(err, fmt.Errorf("%w: %s to %s: %w", ErrDelivery, a.ID, c.Name(), e))
				continue
			}
			if e := told.Add(c.Name(), a.ID); e != nil {
				return sent, errors.Join(err, e)
			}
			sent++
		}
	}
	return sent, err
}

// attempts is how often a delivery is tried: cron tries again later as well.
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
