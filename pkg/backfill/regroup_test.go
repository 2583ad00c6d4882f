package backfill

import "slices"

// regroup looks whether a booking can be moved to this moment just when there is room for it
// once it is taken out.
func (w *world) regroup(i int) {
	b, now := w.taken[i], w.p.Now()
	if b.at <= now {
		return
	}
	simply := w.fits(b.want, now)
	s, ok := w.p.Regroup(b.want, b.at, b.start.Shares)
	slid, slides := w.p.Slide(b.want, b.at, b.start.Shares)
	w.note(b, (*Amount).more)
	w.taken = slices.Delete(w.taken, i, i+1)
	if fits := w.fits(b.want, now); fits != (ok || simply) || fits && !simply && !b.want.SelfOverlapping() && (!slides || slid > now) {
		w.Fatalf("%+v for %v, booked for %d: fits now %v, others alone %v, regroups %v, slides to %d %v", b.want.Need, b.want.Lasts, b.at/minute, fits, simply, ok, slid/minute, slides)
	}
	if ok {
		w.check(b.want, s)
	}
	w.note(b, (*Amount).less)
	w.taken = slices.Insert(w.taken, i, b)
	for _, x := range s.Shares {
		if slices.ContainsFunc(b.start.Shares, func(own Share) bool { return own.Host == x.Host }) {
			continue
		}
		opens := false
		if w.p.EachStartable(x.Host, func(o *Want) { opens = opens || o == b.want }); !opens {
			w.Fatalf("%+v can have host %d now, and is not told", b.want.Need, x.Host)
		}
	}
}
