package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/greylag/greylag/internal/pki"
)

const (
	// reachTime is how long a controller may take to answer.
	reachTime = 5 * time.Second
	// mostSkew is how much two clocks may differ: tokens are valid for 60 s, and a leader whose
	// clock differs from its peers' by 5 s transfers leadership. The date in an answer is in whole
	// seconds.
	mostSkew = 2 * time.Second
)

// answer is the result of any request to one controller.
type answer struct {
	address string
	err     error
	skew    time.Duration // how far its clock is ahead of this host's; 0 within the measurement error
}

// reach asks every controller at once, in the way of all programs: TLS under the cluster's CA. Any
// answer suffices.
func reach(ctx context.Context, addresses []string, tls *tls.Config) []answer {
	all := make([]answer, len(addresses))
	client := &http.Client{Timeout: reachTime, Transport: &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
	var asked sync.WaitGroup
	for i, address := range addresses {
		asked.Go(func() { all[i] = ask(ctx, client, address) })
	}
	asked.Wait()
	return all
}

func ask(ctx context.Context, client *http.Client, address string) answer {
	a := answer{address: address}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/", nil)
	if err != nil {
		a.err = err
		return a
	}
	before := time.Now()
	response, err := client.Do(request)
	after := time.Now()
	if err != nil {
		a.err = err
		return a
	}
	response.Body.Close()
	date, err := http.ParseTime(response.Header.Get("Date"))
	switch {
	case err != nil: // it has no time
	case date.After(after.Add(mostSkew)):
		a.skew = date.Sub(after)
	case date.Add(time.Second).Before(before.Add(-mostSkew)):
		a.skew = date.Sub(before)
	}
	return a
}

// controllers checks that this host reaches them, and that their clocks agree with its own.
func (x *exam) controllers(ctx context.Context, addresses []string, tls *tls.Config) (reached bool) {
	var silent, ahead, behind []string
	var why error
	var worst time.Duration
	for _, a := range reach(ctx, addresses, tls) {
		switch {
		case a.err != nil:
			silent, why = append(silent, a.address), a.err
		case a.skew > 0:
			ahead, worst = append(ahead, a.address), max(worst, a.skew)
		case a.skew < 0:
			behind, worst = append(behind, a.address), max(worst, -a.skew)
		}
	}
	const advice = "check that gctld runs there and its port is open; controllers in this host's file lists them"
	switch {
	case errors.Is(why, pki.ErrUntrusted) || errors.Is(why, pki.ErrWrongRole):
		x.note(Fault, "controllers", "no controller of this cluster answers there: fix controllers in the file, or join this host again", "%s: %s", words(silent), plain(why))
	case len(silent) == len(addresses):
		x.note(Fault, "controllers", advice, "none answers: %s: %s", words(silent), plain(why))
	case len(silent) > 0:
		x.note(Warning, "controllers", advice, "no answer from %s: %s", words(silent), plain(why))
	default:
		x.good("controllers", "every configured or learned address answers: %d", len(addresses))
	}
	if len(ahead)+len(behind) > 0 {
		x.note(Fault, "clock", "run a time service (chrony, systemd-timesyncd): timedatectl set-ntp true", "this host's clock differs from that of %s by %s", words(append(ahead, behind...)), worst.Round(time.Second))
	} else if len(silent) < len(addresses) {
		x.good("clock", "agrees with the controllers")
	}
	return len(silent) < len(addresses)
}

// plain returns the connection error, without the address and the layers that net/http names before
// it.
func plain(err error) error {
	for {
		_, layer := any(err).(interface{ Timeout() bool }) // this layer alone: of package net, or above it
		inner := errors.Unwrap(err)
		if !layer || inner == nil {
			return err
		}
		err = inner
	}
}
