//! The vector datum is pgvector's.

#[pgrx::pg_schema]
mod tests {
    use crate::pg::spi::{self, Snapshot};
    use crate::pg::vector::Vector;
    use pgrx::prelude::*;

    #[pg_test]
    fn a_vector_written_here_is_the_one_pgvector_reads() {
        let text: Option<String> = spi::connect(|s| {
            let rows = s.query(Snapshot::Active, "SELECT $1::text", &[Vector(vec![1.0, -2.5, 0.0]).into()]);
            rows.one()
        });
        assert_eq!(text.as_deref(), Some("[1,-2.5,0]"));
    }

    #[pg_test]
    fn a_vector_written_by_pgvector_is_read_here() {
        let vector: Option<Vector> =
            spi::connect(|s| s.query(Snapshot::Active, "SELECT '[0.25,3e10,-1]'::public.vector", &[]).one());
        assert_eq!(vector, Some(Vector(vec![0.25, 3e10, -1.0])));
    }

    #[pg_test]
    fn a_stored_and_compressed_vector_is_read_whole() {
        Spi::run("CREATE TABLE public.v (e public.vector); ALTER TABLE public.v ALTER e SET STORAGE extended").unwrap();
        let long = Vector(vec![0.5; 4000]);
        spi::connect(|s| s.run("INSERT INTO public.v VALUES ($1)", &[long.clone().into()]));
        let read: Option<Vector> = spi::connect(|s| s.query(Snapshot::New, "SELECT e FROM public.v", &[]).one());
        assert_eq!(read, Some(long));
    }

    #[pg_test]
    fn an_array_of_vectors_has_pgvectors_type() {
        let n: Option<i64> = spi::connect(|s| {
            let vectors = vec![Vector(vec![1.0]), Vector(vec![2.0])];
            s.query(
                Snapshot::Active,
                "SELECT count(*) FROM unnest($1::public.vector[]) v WHERE v OPERATOR(public.<>) '[0]'",
                &[vectors.into()],
            )
            .one()
        });
        assert_eq!(n, Some(2));
    }
}
