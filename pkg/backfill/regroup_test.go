package backfill

import "slices"

// regroup checks that a booking can move to now exactly when there is a place once the booking is
// removed.
func (w *world) regroup(i int) {
	b, now := w.taken[i], w.p.Now()
	if b.at <= now {
		return
	}
	simply := w.fits(b.want, now)
	s, ok := w.p.Regroup(b.want, b.at, b.start.Shares)
	slid, slides := w.p.EarliestInPlace(b.want, b.at, b.start.Shares)
	w.record(b, (*Amount).more)
	w.taken = slices.Delete(w.taken, i, i+1)
	if fits := w.fits(b.want, now); fits != (ok || simply) || fits && !simply && !b.want.SelfOverlapping() && (!slides || slid > now) {
		w.Fatalf("%+v for %v, booked for %d: fits now %v, others alone %v, regroups %v, slides to %d %v", b.want.Need, b.want.Lasts, b.at/minute, fits, simply, ok, slid/minute, slides)
	}
	if ok {
		w.check(b.want, s)
	}
	w.record(b, (*Amount).less)
	w.taken = slices.Insert(w.taken, i, b)
	for _, x := range s.Shares {
		if slices.ContainsFunc(b.start.Shares, func(own HostShare) bool { return own.Host == x.Host }) {
			continue
		}
		opens := false
		if w.p.EachStartable(x.Host, func(o *Want) { opens = opens || o == b.want }); !opens {
			w.Fatalf("%+v can start on host %d now, and was not reported", b.want.Need, x.Host)
		}
	}
}
