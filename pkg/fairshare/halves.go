package fairshare

// invLn2 is 1/ln 2 with 63 binary places.
const invLn2 = 0xb8aa3b295c17f0bc

// halves holds 2^(-2^-i) for i = 1, 2, ..., 64 with 64 binary places, rounded to nearest. It never
// changes; a test computes it again.
var halves = [64]uint64{
	0xb504f333f9de6484, 0xd744fccad69d6af4, 0xeac0c6e7dd24392f, 0xf5257d152486cc2c,
	0xfa83b2db722a033a, 0xfd3e0c0cf486c175, 0xfe9e115c7b8f884c, 0xff4ecb59511ec8a5,
	0xffa756521c8daed2, 0xffd3a751c0f7e10c, 0xffe9d2b2f7db2756, 0xfff4e91bff1b8c3e,
	0xfffa747ea0040664, 0xfffd3a3b7814eb54, 0xfffe9d1cc60ddab1, 0xffff4e8e25879bfa,
	0xffffa7470363f451, 0xffffd3a37dda0313, 0xffffe9d1bdf703af, 0xfffff4e8debe025e,
	0xfffffa746f4fa150, 0xfffffd3a37a3f8b0, 0xfffffe9d1bd1065a, 0xffffff4e8de845ae,
	0xffffffa746f41377, 0xffffffd3a37a05e4, 0xffffffe9d1bd01fc, 0xfffffff4e8de80c0,
	0xfffffffa746f4051, 0xfffffffd3a37a025, 0xfffffffe9d1bd011, 0xffffffff4e8de808,
	0xffffffffa746f404, 0xffffffffd3a37a02, 0xffffffffe9d1bd01, 0xfffffffff4e8de81,
	0xfffffffffa746f40, 0xfffffffffd3a37a0, 0xfffffffffe9d1bd0, 0xffffffffff4e8de8,
	0xffffffffffa746f4, 0xffffffffffd3a37a, 0xffffffffffe9d1bd, 0xfffffffffff4e8df,
	0xfffffffffffa746f, 0xfffffffffffd3a38, 0xfffffffffffe9d1c, 0xffffffffffff4e8e,
	0xffffffffffffa747, 0xffffffffffffd3a3, 0xffffffffffffe9d2, 0xfffffffffffff4e9,
	0xfffffffffffffa74, 0xfffffffffffffd3a, 0xfffffffffffffe9d, 0xffffffffffffff4f,
	0xffffffffffffffa7, 0xffffffffffffffd4, 0xffffffffffffffea, 0xfffffffffffffff5,
	0xfffffffffffffffa, 0xfffffffffffffffd, 0xffffffffffffffff, 0xffffffffffffffff,
}
