package codec

import (
	"errors"
	"testing"
)

func TestForms(t *testing.T) {
	for form := uint8(1); form <= lastForm; form++ {
		if got, err := FormOf(FormByte(form)); got != form || err != nil {
			t.Errorf("form %d reads as %d, %v", form, got, err)
		}
	}
	for b, want := range map[byte]error{0: ErrMalformed, 1: ErrEarlier, 6: ErrEarlier, 7: ErrMalformed, 0x40: ErrMalformed, 0x80: ErrMalformed, 0xff: ErrMalformed} {
		if _, err := FormOf(b); !errors.Is(err, want) {
			t.Errorf("the byte %#x: %v, want %v", b, err, want)
		}
	}
}
