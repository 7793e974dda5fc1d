/* kernels/cpu/vec_body.h - the vectors of the *_body.h files: LANES floats, defined by whoever includes the body. They are the
 * compiler's own (GCC and Clang), so that the bodies know no instruction set. */
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int32_t ivec __attribute__((vector_size(LANES * 4)));
typedef uint32_t uvec __attribute__((vector_size(LANES * 4)));
typedef uint16_t hvec __attribute__((vector_size(LANES * 2)));

INLINE vec load(const void *p)
{
    vec v;

    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void store(void *p, vec v)
{
    memcpy(p, &v, sizeof v);
}

INLINE vec all(float x)
{
    return x - (vec){ 0 };
}

INLINE vec choose(ivec where, vec yes, vec no)
{
    return (vec)(((ivec)yes & where) | ((ivec)no & ~where));
}
